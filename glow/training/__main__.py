"""`python -m glow.training`: the training commands under their old names."""

from glow.commands import package_app
from glow.training.commands import average, data, train

app = package_app(
    {
        "train": train.train_command,
        "mine": data.mine_command,
        "synthesize": data.synthesize_command,
        "average": average.average_command,
    },
    "Train GLOW's two towers.",
)

if __name__ == "__main__":
    app()
