"""An interruption of a script that is still importing ends it at once, without a traceback.

A script imports this module before anything that takes time. Once its main function runs,
`voxcast.errors.exits_cleanly` makes an interruption an exception again.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as by nohup
    signal.signal(signal.SIGINT, signal.SIG_DFL)
