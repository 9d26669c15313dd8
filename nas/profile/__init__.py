"""One network on this device: any candidate or ONNX file, on one runtime or several."""
