"""The port that the script chose is taken by another program of the node."""
#: cause = ["port_busy"]
#: verdict = "retry"
#: launch = "python"

import os
import socket

from training import train

taken = socket.create_server(("127.0.0.1", 0))
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(taken.getsockname()[1]))
train()
