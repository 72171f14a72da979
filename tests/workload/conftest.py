from hypothesis import settings

# A test is no slower for a busy machine: speed has tests of its own.
settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")
