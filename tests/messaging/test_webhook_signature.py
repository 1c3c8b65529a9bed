"""The signature is the one of Standard Webhooks."""

from datetime import UTC, datetime

from messaging.webhook_signature import headers


def test_the_example_of_the_specification_is_signed_as_there() -> None:
    """Secret, id, time, body and signature as its reference libraries test them."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'

    signed = headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", datetime.fromtimestamp(1614265330.7, UTC), body)

    assert signed == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_retry_has_the_same_id_and_another_signature() -> None:
    """The time is signed too: an old delivery cannot be sent again by somebody else."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

    first, second = (headers(secret, "msg_1", datetime.fromtimestamp(at, UTC), b"{}") for at in (1000, 2000))

    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-signature"] != second["webhook-signature"]
