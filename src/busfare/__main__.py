"""`python -m busfare`."""

from busfare.start import main

main()
