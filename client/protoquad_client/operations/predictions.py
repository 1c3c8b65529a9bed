"""`/predict`: images in, labels out."""

from collections.abc import Sequence

from protoquad_client.answers import Prediction
from protoquad_client.errors import UnexpectedAnswer
from protoquad_client.forms import EncodedImage, as_form
from protoquad_client.parsing import loads, value_of
from protoquad_client.requests import Answer, Request, given


def predict(
    images: Sequence[EncodedImage],
    top_k: int | None = None,
    version: int | None = None,
    views: int | None = None,
    explain: bool | None = None,
) -> Request[list[Prediction]]:
    params = given(top_k=top_k, version=version, views=views, explain=explain or None)
    return Request("POST", "/predict", _predictions, params=params, **as_form("images", images))


def _predictions(answer: Answer) -> list[Prediction]:
    content = loads(answer.content)
    try:
        common = {"model": content["model"], "version": content["version"]}
        return [value_of(Prediction, {**one, **common}) for one in content["predictions"]]
    except (KeyError, TypeError) as error:
        raise UnexpectedAnswer("the answer is none to a prediction; is the service as new as this client?") from error
