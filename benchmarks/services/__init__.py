"""Real translation services on loopback, without a download of models: what calibrations and validations are tried on.

`python -m benchmarks.services NAME` runs one until Ctrl-C. Programs and models are made once, in the folder that `cache_folder`
names. Start with `base.py`. The models are random or copy their input, so that only times and lengths are meaningful. The
packages of a service are installed into an environment of its own, never into that of simnmt: LibreTranslate's licence (AGPL)
allows a separate process, not a dependency.
"""
