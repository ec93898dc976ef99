"""The REST API: answers from the newest snapshot and the store; changes are requests that the loop reads."""
