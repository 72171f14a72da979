"""What speaks HTTP or moves bytes between boxes: the messages of the translation API, its server frame and client, the load
generator, and the delay link.

Start with `messages` (the API's requests and answers), `http_server` (limits, access, drain), and `client`. No module here
imports torch or knows a policy.
"""
