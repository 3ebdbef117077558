# What `__getattr__` gives, for those who look without running. The fingerprint of jobs does not read this file.
from anchorscope.api.results import open as open
from anchorscope.detect.detector import load_detector as load_detector
