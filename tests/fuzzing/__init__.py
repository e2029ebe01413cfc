"""Random functions of one element, computed every way there is, and compared.

``python -P tests/fuzzing/search.py --help`` runs more of them than the tests do.

``functions.py`` has what a function is and how it is written as Python; ``making.py`` makes one at
random; ``batches.py`` has many of them with operands, ``ways.py`` computes these in each way, and
``comparing.py`` compares with what is right; ``search.py`` makes functions that differ smaller and
prints a program that reproduces the difference.
"""
