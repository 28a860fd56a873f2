"""`python -m busfare`."""

from busfare.cli import main

main()
