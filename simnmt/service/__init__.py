"""What speaks HTTP: the messages of the translation API, its server frame and client, the load generator, and slept delays.

Start with `messages` (the API's requests and answers), `http_server` (access, limits, drain), `client`, and `apis` (the client
of each API; `chat` is OpenAI's). No module here imports torch or knows a policy.
"""
