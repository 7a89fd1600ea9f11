"""Where torch alone is installed, `research.gpu` runs these tests: what they never call may be missing."""

from research.gpu.standins import stand_in

stand_in()
