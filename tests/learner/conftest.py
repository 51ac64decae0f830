import sys
from pathlib import Path

# The reference model below is a plain module; importlib mode puts no test folder on the path.
sys.path.insert(0, str(Path(__file__).parent))
