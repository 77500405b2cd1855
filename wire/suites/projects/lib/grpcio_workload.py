"""Calls and streams of all four kinds of gRPC, between processes, with messages of many sizes, deadlines and cancellations."""

import asyncio
import hashlib
import multiprocessing
import os
import random
import traceback
from concurrent import futures

import grpc

SIZES = [0, 1, 100, 4096, 70_000, 1_000_000]


def identity(data):
    return data


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        kinds = {
            "/echo/unary": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
            "/echo/download": grpc.unary_stream_rpc_method_handler(self.download),
            "/echo/upload": grpc.stream_unary_rpc_method_handler(self.upload),
            "/echo/both": grpc.stream_stream_rpc_method_handler(lambda requests, _: (one for one in requests)),
        }
        return kinds.get(details.method)

    def download(self, request, context):
        while context.is_active():
            yield request

    def upload(self, requests, context):
        digest = hashlib.sha256()
        for request in requests:
            digest.update(request)
        return digest.digest()


def serve(connection):
    server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((Echo(),))
    connection.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    connection.recv()
    server.stop(None).wait()


def payload(size):
    return random.Random(size).randbytes(size)


def unary(channel):
    call = channel.unary_unary("/echo/unary")
    for size in SIZES * 50:
        assert call(payload(size), timeout=30) == payload(size)


def unary_in_threads(channel):
    call = channel.unary_unary("/echo/unary")
    with futures.ThreadPoolExecutor(16) as pool:
        sizes = SIZES[:-1] * 100
        for size, answer in zip(sizes, pool.map(lambda size: call(payload(size), timeout=60), sizes)):
            assert answer == payload(size)


def unary_all_at_once(channel):
    call = channel.unary_unary("/echo/unary")
    started = [(size, call.future(payload(size), timeout=60)) for size in SIZES[:-1] * 40]
    for size, future in started:
        assert future.result() == payload(size)


def upload(channel):
    call = channel.stream_unary("/echo/upload")
    for size in SIZES[1:]:
        digest = hashlib.sha256()
        for _ in range(100):
            digest.update(payload(size))
        assert call((payload(size) for _ in range(100)), timeout=60) == digest.digest()


def both(channel):
    call = channel.stream_stream("/echo/both")
    for size in SIZES:
        answers = list(call((payload(size) for _ in range(50)), timeout=60))
        assert answers == [payload(size)] * 50


def download_cancelled(channel):
    call = channel.unary_stream("/echo/download")
    for size in SIZES * 5:
        stream = call(payload(size), timeout=60)
        for _ in range(20):
            assert next(stream) == payload(size)
        stream.cancel()


def deadline(channel):
    call = channel.unary_stream("/echo/download")
    for _ in range(5):
        try:
            for _ in call(payload(4096), timeout=0.2):
                pass
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        else:
            raise AssertionError("no deadline")


def unimplemented(channel):
    for _ in range(50):
        try:
            channel.unary_unary("/echo/none")(b"", timeout=30)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
        else:
            raise AssertionError("no error")


def many_channels(target):
    for number in range(60):
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(target, options=options) as channel:
            for size in SIZES[:5]:
                assert channel.unary_unary("/echo/unary")(payload(size + number), timeout=30) == payload(size + number)


def by_asyncio(target):
    async def talk():
        async with grpc.aio.insecure_channel(target) as channel:
            call = channel.unary_unary("/echo/unary")

            async def one(size):
                assert await call(payload(size), timeout=60) == payload(size)

            await asyncio.gather(*(one(size) for size in SIZES[:-1] * 60))
            stream = channel.stream_stream("/echo/both")(timeout=60)
            for size in SIZES * 20:
                await stream.write(payload(size))
                assert await stream.read() == payload(size)
            await stream.done_writing()

    asyncio.run(talk())


def main():
    only = os.environ.get("ONLY")
    chosen = set(open(only).read().split()) if only else None
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    server.start()
    target = f"127.0.0.1:{ours.recv()}"
    with grpc.insecure_channel(target, options=[("grpc.max_receive_message_length", -1)]) as channel:
        parts = [(one, channel) for one in (
            unary, unary_in_threads, unary_all_at_once, upload, both, download_cancelled, deadline, unimplemented)]
        for part, argument in parts + [(many_channels, target), (by_asyncio, target)]:
            if chosen and part.__name__ not in chosen:
                continue
            outcome = "passed"
            try:
                part(argument)
            except Exception:
                traceback.print_exc()
                outcome = "failed"
            with open(os.environ["RESULTS"], "a") as results:
                results.write(f"{outcome}\t{part.__name__}\n")
    ours.send("end")
    server.join()


if __name__ == "__main__":
    main()
