"""simnmt: where should neural machine translation run?"""

__version__ = "0.1.0"
