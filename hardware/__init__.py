"""hardware: the arm's side of the house.

The recording format (a folder of sealed HDF5 episodes), importers of other formats, calibration, motions and
integrity checks. Imports nothing of ours, and neither torch nor mujoco: it must start fast next to the arm.
"""

from hardware.alignment import AlignedEpisode
from hardware.episode import Episode
from hardware.errors import InputError
from hardware.recording import Progress, Recording, RecordingWriter
from hardware.schema import Actions, Joint, RecordingInfo, View

__all__ = [
    "Actions",
    "AlignedEpisode",
    "Episode",
    "InputError",
    "Joint",
    "Progress",
    "Recording",
    "RecordingInfo",
    "RecordingWriter",
    "View",
]
