"""The methods under test. Each makes the next state from a learner's state and the shots of a session.

All of them have the same backbone, the same base session, the same shots and the same space, so that what differs
between two rows of a table is the method. Those whose idea is in the base session go on from the shared one with an
objective of their own.
"""

from bench.methods.closer import CLOSER
from bench.methods.contract import METHODS, Method, Outcome, Rival, SessionContext, Setup, register
from bench.methods.eeil import EEIL
from bench.methods.f2m import F2M
from bench.methods.finetune import FINETUNE
from bench.methods.fsll import FSLL
from bench.methods.icarl import ICARL
from bench.methods.joint import JOINT
from bench.methods.lucir import LUCIR
from bench.methods.ncm import NCM
from bench.methods.protoquad import PROTOQUAD
from bench.methods.ranpac import RANPAC
from bench.methods.teen import TEEN
from bench.methods.topic import TOPIC

__all__ = ["METHODS", "Method", "Outcome", "Rival", "SessionContext", "Setup"]

register(
    {
        "ncm": NCM,
        "finetune": FINETUNE,
        "joint": JOINT,
        "icarl": ICARL,
        "eeil": EEIL,
        "lucir": LUCIR,
        "topic": TOPIC,
        "fsll": FSLL,
        "f2m": F2M,
        "teen": TEEN,
        "closer": CLOSER,
        "ranpac": RANPAC,
        "protoquad": PROTOQUAD,
    }
)
