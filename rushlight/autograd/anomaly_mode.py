"""Anomaly mode under the module name that PyTorch gives it."""

from .modes import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
