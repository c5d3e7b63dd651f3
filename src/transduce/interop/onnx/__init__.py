"""ONNX: two graphs, encoder and decoder step; written, and used as an engine by ONNX Runtime."""
