"""What speaks HTTP: the messages of the translation API, its server frame and client, the load generator, and slept delays.

Start with `messages` (the API's requests and answers), `http_server` (access, limits, drain), and `client`. No module here
imports torch or knows a policy.
"""
