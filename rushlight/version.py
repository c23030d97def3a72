"""The version: PyTorch's whose behaviour is held to, and Rushlight's own."""

__version__ = "2.13.0+rushlight.0.1.0"
rushlight = "0.1.0"
cuda = None
hip = None
xpu = None
git_version = ""
debug = False
