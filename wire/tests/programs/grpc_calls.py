"""gRPC for Python: a server, and clients that check what they get and print the seconds it took.

usage: grpc_calls.py serve PORT                    prints the port (any free one for 0), and serves until SIGTERM
       grpc_calls.py unary PORT CALLS SIZE         calls one after another, with a message of SIZE bytes there and back
       grpc_calls.py download PORT MESSAGES SIZE   a stream of messages from the server
       grpc_calls.py upload PORT MESSAGES SIZE     a stream of messages to it
       grpc_calls.py both PORT MESSAGES SIZE       a stream there, and each message back in another one
"""

import hashlib
import signal
import sys
import time
from concurrent import futures

import grpc

UNLIMITED = [("grpc.max_receive_message_length", -1)]


def message(number, size):
    """Bytes that say which message they are."""
    return (number.to_bytes(8, "little") + bytes(range(251)) * (size // 251 + 1))[:size]


def digest(messages):
    total = hashlib.sha256()
    for one in messages:
        total.update(one)
    return total.digest()


class Service(grpc.GenericRpcHandler):
    def service(self, details):
        kinds = {
            "/bench/unary": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
            "/bench/download": grpc.unary_stream_rpc_method_handler(self.download),
            "/bench/upload": grpc.stream_unary_rpc_method_handler(lambda requests, _: digest(requests)),
            "/bench/both": grpc.stream_stream_rpc_method_handler(lambda requests, _: requests),
        }
        return kinds.get(details.method)

    def download(self, request, _):
        count, size = map(int, request.split())
        return (message(number, size) for number in range(count))


def serve(port):
    # The threads of the library inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    server = grpc.server(futures.ThreadPoolExecutor(8), options=UNLIMITED)
    server.add_generic_rpc_handlers((Service(),))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    print(port, flush=True)
    signal.sigwait([signal.SIGTERM])
    server.stop(None).wait()


def check(what, right):
    if not right:
        raise SystemExit(f"{what} is not what was sent")


def unary(channel, count, size):
    call = channel.unary_unary("/bench/unary")
    for number in range(count):
        sent = message(number, size)
        check(f"answer {number}", call(sent) == sent)


def download(channel, count, size):
    expected = (message(number, size) for number in range(count))
    answers = channel.unary_stream("/bench/download")(f"{count} {size}".encode())
    check("the number of messages", sum(check("a message", one == next(expected)) is None for one in answers) == count)


def upload(channel, count, size):
    sent = [message(number, size) for number in range(count)]
    check("the stream", channel.stream_unary("/bench/upload")(iter(sent)) == digest(sent))


def both(channel, count, size):
    sent = [message(number, size) for number in range(count)]
    check("the stream", list(channel.stream_stream("/bench/both")(iter(sent))) == sent)


def main():
    what, port, *amounts = sys.argv[1:]
    if what == "serve":
        return serve(port)
    work = {"unary": unary, "download": download, "upload": upload, "both": both}[what]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED) as channel:
        # Connects.
        unary(channel, 1, 8)
        begin = time.perf_counter()
        work(channel, *map(int, amounts))
        print(time.perf_counter() - begin)


main()
