"""The JSON of the protocol: what a request says beside its images, and what is answered."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from service.uploads import TINY_IMAGE

INPUT = "image"
LONGEST_ID = 200  # characters of a request's own id
MOST_DIMENSIONS = 8
Datatype = Literal["BYTES", "INT64", "FP32", "BOOL"]


class TensorMetadata(BaseModel):
    name: str = Field(examples=[INPUT])
    datatype: Datatype = Field(examples=["BYTES"])
    shape: list[int] = Field(description="-1: any number.", examples=[[-1]])


class ServerMetadata(BaseModel):
    name: str = Field(examples=["protoquad"])
    version: str
    extensions: list[str] = Field(examples=[["binary_tensor_data"]])


class ModelMetadata(BaseModel):
    name: str = Field(examples=["default"])
    versions: list[str] = Field(description="Those that can be asked, newest first.", examples=[["3", "2"]])
    platform: str = Field(examples=["protoquad"])
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class Live(BaseModel):
    live: bool


class Ready(BaseModel):
    ready: bool


class ModelReady(BaseModel):
    name: str
    ready: bool


class ErrorBody(BaseModel):
    """The body of every error under `/v2`."""

    error: str = Field(description="What was asked, what is true, what to do.")


class _Part(BaseModel):
    """Of a request; the protocol lets callers add fields and parameters, which are ignored. Null is as if left out."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, sent: Any) -> Any:
        return {name: value for name, value in sent.items() if value is not None} if isinstance(sent, dict) else sent


class RequestParameters(_Part):
    top_k: Annotated[StrictInt, Field(ge=1, le=100)] | None = None
    views: Annotated[StrictInt, Field(ge=1, le=6)] = 1
    binary_data_output: StrictBool = False


class InputParameters(_Part):
    binary_data_size: Annotated[StrictInt, Field(ge=0)] | None = None


class OutputParameters(_Part):
    binary_data: StrictBool | None = None
    classification: Any = None  # of Triton's extensions, which would change what an output is
    shared_memory_region: Any = None


class RequestInput(_Part):
    name: str
    shape: Annotated[list[Annotated[StrictInt, Field(ge=0, lt=2**31)]], Field(max_length=MOST_DIMENSIONS)]
    datatype: str
    parameters: InputParameters = InputParameters()


class RequestOutput(_Part):
    name: str
    parameters: OutputParameters = OutputParameters()


class RequestHead(_Part):
    """All of a request but its images."""

    id: Annotated[str, Field(max_length=LONGEST_ID)] | None = None
    parameters: RequestParameters = RequestParameters()
    inputs: list[RequestInput]
    outputs: list[RequestOutput] = []


# OpenAPI

_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "top_k": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Adds the outputs `top_…`."},
        "views": {"type": "integer", "minimum": 1, "maximum": 6, "description": "As of `POST /predict`."},
        "binary_data_output": {"type": "boolean", "description": "Answer with binary tensors."},
    },
}
_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"const": INPUT},
        "datatype": {"const": "BYTES"},
        "shape": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1},
            "description": "The number of images.",
        },
        "data": {
            "type": "array",
            "items": {"type": "string", "contentEncoding": "base64", "description": "An image, in base64."},
        },
        "parameters": {"type": "object", "properties": {"binary_data_size": {"type": "integer", "minimum": 0}}},
    },
    "required": ["name", "datatype", "shape"],
}
_REQUEST: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "maxLength": LONGEST_ID},
        "parameters": _PARAMETERS,
        "inputs": {"type": "array", "minItems": 1, "maxItems": 1, "items": _INPUT},
        "outputs": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string", "examples": ["label"]}},
                "required": ["name"],
            },
        },
    },
    "required": ["inputs"],
}
REQUEST_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": _REQUEST,
            "example": {"inputs": [{"name": INPUT, "datatype": "BYTES", "shape": [1], "data": [TINY_IMAGE]}]},
        },
        "application/octet-stream": {
            "schema": {"type": "string", "format": "binary", "description": "JSON, and the images after it."}
        },
    },
}


class ResponseOutput(BaseModel):
    name: str = Field(examples=["label"])
    datatype: Datatype
    shape: list[int] = Field(examples=[[1]])
    parameters: dict[str, int] | None = Field(None, description="`binary_data_size`: it follows the JSON.")
    data: list[Any] | None = Field(None, examples=[["mug"]])


class InferenceResponse(BaseModel):
    model_name: str = Field(examples=["default"])
    model_version: str = Field(examples=["3"])
    id: str | None = None
    outputs: list[ResponseOutput]
