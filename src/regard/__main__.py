"""`python -m regard`, which `torchrun -m regard` needs."""

from regard.cli import main

main()
