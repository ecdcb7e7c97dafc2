"""hardware.exporters: recordings turned into sets of other formats.

`export_lerobot` makes a LeRobotDataset by LeRobot's own writer (extra `lerobot`, imported only when it is
called); `export_world_model` the HDF5 that LeWM and stable-worldmodel read.
"""

from hardware.exporters.lerobot import export_lerobot
from hardware.exporters.report import ExportedEpisode, ExportReport
from hardware.exporters.world_model_hdf5 import WorldModelReport, export_world_model

__all__ = ["ExportReport", "ExportedEpisode", "WorldModelReport", "export_lerobot", "export_world_model"]
