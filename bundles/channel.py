"""Messages over one stream for several threads: each waits for what is addressed to it.

Whichever thread waits reads for all of them, one frame at a time, so that frames are decoded in the order in which
they came; what is for another thread is put aside and that thread is woken.
"""

import _thread

import codec


class Channel:
    """`address` says for whom a message is."""

    def __init__(self, read, write, encoder, decoder, address):
        self._read = read
        self._write = write
        self._encoder = encoder
        self._decoder = decoder
        self._address = address
        self._sending = _thread.RLock()
        self._state = _thread.allocate_lock()
        self._reader = None
        self._arrived = {}
        # (address, lock) of each thread that waits while another one reads.
        self._waiting = []
        self._failed = None

    def send(self, message):
        with self._sending:
            codec.send_frame(self._write, self._encoder.encode(message))

    def receive(self, address):
        """The next message for this address."""
        me = _thread.get_ident()
        while True:
            with self._state:
                arrived = self._arrived.get(address)
                if arrived:
                    message = arrived.pop(0)
                    if not arrived:
                        del self._arrived[address]
                    self._wake_one()
                    return message
                if self._failed is not None:
                    raise self._failed
                # Reading a message may itself take a question and its answer: then this thread reads already.
                nested = self._reader == me
                waits = self._reader is not None and not nested
                if waits:
                    lock = _thread.allocate_lock()
                    lock.acquire()
                    self._waiting.append((address, lock))
                else:
                    self._reader = me
            if waits:
                lock.acquire()
                continue
            self._read_one(nested)

    def _read_one(self, nested):
        try:
            message = self._decoder.decode(codec.receive_frame(self._read))
            # A message for nobody is an error like a malformed one: whoever waits has to hear of it.
            address = self._address(message)
        except BaseException as error:
            with self._state:
                # A signal handler of the program may raise here, which is no end of the conversation.
                self._failed = error if isinstance(error, codec.WireError) or nested else None
                self._reader = self._reader if nested else None
                self._wake(lambda _: True)
            raise
        with self._state:
            self._arrived.setdefault(address, []).append(message)
            if not nested:
                self._reader = None
            self._wake(lambda waits_for: waits_for == address)

    def _wake(self, concerned):
        """Each of these looks again for what came, and else for whether it has to read."""
        for each in [each for each in self._waiting if concerned(each[0])]:
            self._waiting.remove(each)
            each[1].release()

    def _wake_one(self):
        """This thread stops waiting: another one has to read now."""
        if self._reader is None and self._waiting:
            self._waiting.pop()[1].release()
