"""The Conformer-Kernel paper's tables at a small scale: quality of NDRM1 to NDRM3, and cost by document length."""
