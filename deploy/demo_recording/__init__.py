"""How the recording that the demo replays was made, and is made again."""
