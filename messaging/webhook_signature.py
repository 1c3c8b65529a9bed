"""The signature of a webhook's delivery, as Standard Webhooks defines it (https://www.standardwebhooks.com)."""

import base64
import hashlib
import hmac
from datetime import datetime

PREFIX = "whsec_"


def headers(secret: str, message_id: str, moment: datetime, body: bytes) -> dict[str, str]:
    """The three headers that a receiver checks. A retry has the same id, and the time of the retry."""
    timestamp = str(int(moment.timestamp()))
    signed = b".".join([message_id.encode(), timestamp.encode(), body])
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signature = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": f"v1,{signature}"}
