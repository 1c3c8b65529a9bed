"""A version as one graph that runs without the service: images in, answers out, for ONNX runtimes and OpenVINO."""
