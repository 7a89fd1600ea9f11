"""The tables of the Conformer-Kernel paper at our scale: NDRM1 to NDRM3 trained, searched whole and re-ranked; cost by document length."""
