"""A package, so that tests may share `tests.worlds`: a library of ours installs a package of the same name."""
