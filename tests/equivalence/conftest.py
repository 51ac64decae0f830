import sys
from pathlib import Path

# The references below are plain modules; importlib mode puts no test folder on the path.
sys.path.insert(0, str(Path(__file__).parent))
