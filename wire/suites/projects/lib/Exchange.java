import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** A server and a client in each of the ways in which a JDK has TCP: each sends bytes, wants them back, and compares them. */
public class Exchange {
    static final int CONNECTIONS = 20;
    static final int BYTES = 1_000_000;

    interface Server extends Closeable {
        int port() throws IOException;
    }

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "serve" -> {
                Server server = server(arguments[1]);
                System.out.println(server.port());
                System.in.read();
                System.exit(0);
            }
            case "connect" -> {
                int port = Integer.parseInt(arguments[2]);
                var pool = Executors.newCachedThreadPool(Exchange::thread);
                List<Future<?>> all = new ArrayList<>();
                for (int i = 0; i < CONNECTIONS; i++) {
                    int seed = i;
                    all.add(pool.submit(() -> {
                        client(arguments[1], port, seed);
                        return null;
                    }));
                }
                for (var one : all) {
                    one.get();
                }
                System.exit(0);
            }
        }
    }

    static byte[] data(int seed) {
        byte[] data = new byte[BYTES];
        new Random(seed).nextBytes(data);
        return data;
    }

    static void check(byte[] wanted, byte[] got) {
        if (!Arrays.equals(wanted, got)) {
            throw new AssertionError("got " + got.length + " bytes, " + Arrays.mismatch(wanted, got) + " as they were sent");
        }
    }

    static Server server(String kind) throws Exception {
        switch (kind) {
            case "socket": {
                var listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                daemon(() -> {
                    while (true) {
                        Socket socket = listener.accept();
                        daemon(() -> {
                            try (socket) {
                                socket.getInputStream().transferTo(socket.getOutputStream());
                            }
                            return null;
                        });
                    }
                });
                return of(listener::getLocalPort);
            }
            case "selector": {
                var listener = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
                listener.configureBlocking(false);
                Selector selector = Selector.open();
                listener.register(selector, SelectionKey.OP_ACCEPT);
                daemon(() -> select(selector, listener));
                return of(() -> ((InetSocketAddress) listener.getLocalAddress()).getPort());
            }
            case "asynchronous": {
                var listener = AsynchronousServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
                listener.accept(null, new CompletionHandler<AsynchronousSocketChannel, Void>() {
                    @Override
                    public void completed(AsynchronousSocketChannel channel, Void nothing) {
                        listener.accept(null, this);
                        echo(channel);
                    }

                    @Override
                    public void failed(Throwable cause, Void nothing) {
                        cause.printStackTrace();
                    }
                });
                return of(() -> ((InetSocketAddress) listener.getLocalAddress()).getPort());
            }
            case "http": {
                var server = com.sun.net.httpserver.HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
                server.setExecutor(Executors.newCachedThreadPool(Exchange::thread));
                server.createContext("/echo", exchange -> {
                    byte[] body = exchange.getRequestBody().readAllBytes();
                    exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
                    exchange.getResponseBody().write(body);
                    exchange.close();
                });
                server.start();
                return of(() -> server.getAddress().getPort());
            }
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    static Server of(Callable<Integer> port) {
        return new Server() {
            @Override
            public int port() throws IOException {
                try {
                    return port.call();
                } catch (Exception cause) {
                    throw new IOException(cause);
                }
            }

            @Override
            public void close() {}
        };
    }

    static void daemon(Callable<?> body) {
        thread(() -> {
            try {
                body.call();
            } catch (Exception cause) {
                cause.printStackTrace();
            }
        }).start();
    }

    /** A daemon; with -Dexchange.virtual=true a virtual thread, by reflection since JDK 17 compiles this. */
    static Thread thread(Runnable body) {
        if (Boolean.getBoolean("exchange.virtual")) {
            try {
                Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
                return (Thread) Class.forName("java.lang.Thread$Builder").getMethod("unstarted", Runnable.class).invoke(builder, body);
            } catch (ReflectiveOperationException cause) {
                throw new AssertionError(cause);
            }
        }
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        return thread;
    }

    /** Echoes; the end of a client's direction ends the connection once everything is back. */
    static Void select(Selector selector, ServerSocketChannel listener) throws IOException {
        while (true) {
            selector.select();
            for (var keys = selector.selectedKeys().iterator(); keys.hasNext(); ) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    SocketChannel channel = listener.accept();
                    if (channel != null) {
                        channel.configureBlocking(false);
                        channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(20_000));
                    }
                    continue;
                }
                SocketChannel channel = (SocketChannel) key.channel();
                ByteBuffer buffer = (ByteBuffer) key.attachment();
                boolean end = false;
                if (key.isReadable()) {
                    end = channel.read(buffer) < 0;
                }
                buffer.flip();
                channel.write(buffer);
                boolean empty = !buffer.hasRemaining();
                buffer.compact();
                if (end && empty) {
                    channel.close();
                } else {
                    key.interestOps(empty ? SelectionKey.OP_READ : end ? SelectionKey.OP_WRITE
                        : buffer.hasRemaining() ? SelectionKey.OP_READ | SelectionKey.OP_WRITE : SelectionKey.OP_WRITE);
                }
            }
        }
    }

    static void echo(AsynchronousSocketChannel channel) {
        ByteBuffer buffer = ByteBuffer.allocateDirect(30_000);
        channel.read(buffer, 30, TimeUnit.SECONDS, true, new CompletionHandler<Integer, Boolean>() {
            @Override
            public void completed(Integer count, Boolean reading) {
                if (reading && count < 0) {
                    try {
                        channel.close();
                    } catch (IOException cause) {
                        cause.printStackTrace();
                    }
                    return;
                }
                if (reading) {
                    buffer.flip();
                }
                if (buffer.hasRemaining()) {
                    channel.write(buffer, 30, TimeUnit.SECONDS, false, this);
                } else {
                    buffer.clear();
                    channel.read(buffer, 30, TimeUnit.SECONDS, true, this);
                }
            }

            @Override
            public void failed(Throwable cause, Boolean reading) {
                cause.printStackTrace();
            }
        });
    }

    static void client(String kind, int port, int seed) throws Exception {
        byte[] data = data(seed);
        var address = new InetSocketAddress("127.0.0.1", port);
        switch (kind) {
            case "socket": {
                try (Socket socket = new Socket()) {
                    socket.connect(address, 30_000);
                    socket.setSoTimeout(30_000);
                    daemon(() -> {
                        socket.getOutputStream().write(data);
                        socket.shutdownOutput();
                        return null;
                    });
                    check(data, socket.getInputStream().readAllBytes());
                }
                break;
            }
            case "selector": {
                try (Selector selector = Selector.open(); SocketChannel channel = SocketChannel.open()) {
                    channel.configureBlocking(false);
                    channel.connect(address);
                    channel.register(selector, SelectionKey.OP_CONNECT);
                    ByteBuffer out = ByteBuffer.wrap(data);
                    ByteBuffer in = ByteBuffer.allocate(BYTES + 1);
                    for (boolean end = false; !end; ) {
                        if (selector.select(30_000) == 0) {
                            throw new AssertionError("nothing in 30 s, after " + in.position() + " bytes");
                        }
                        SelectionKey key = selector.selectedKeys().iterator().next();
                        selector.selectedKeys().clear();
                        if (key.isConnectable()) {
                            channel.finishConnect();
                            key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                        }
                        if (key.isWritable()) {
                            channel.write(out);
                            if (!out.hasRemaining()) {
                                channel.shutdownOutput();
                                key.interestOps(SelectionKey.OP_READ);
                            }
                        }
                        if (key.isReadable()) {
                            end = channel.read(in) < 0;
                        }
                    }
                    check(data, Arrays.copyOf(in.array(), in.position()));
                }
                break;
            }
            case "asynchronous": {
                try (var channel = AsynchronousSocketChannel.open()) {
                    channel.connect(address).get();
                    ByteBuffer out = ByteBuffer.wrap(data);
                    ByteBuffer in = ByteBuffer.allocate(BYTES);
                    daemon(() -> {
                        while (out.hasRemaining()) {
                            channel.write(out).get();
                        }
                        channel.shutdownOutput();
                        return null;
                    });
                    while (in.hasRemaining() && channel.read(in).get(30, TimeUnit.SECONDS) >= 0) {}
                    check(data, Arrays.copyOf(in.array(), in.position()));
                }
                break;
            }
            case "gathering": {
                try (SocketChannel channel = SocketChannel.open(address)) {
                    daemon(() -> {
                        ByteBuffer[] parts = new ByteBuffer[100];
                        for (int i = 0; i < parts.length; i++) {
                            parts[i] = ByteBuffer.wrap(data, i * (BYTES / 100), BYTES / 100);
                        }
                        while (parts[parts.length - 1].hasRemaining()) {
                            channel.write(parts);
                        }
                        return null;
                    });
                    ByteBuffer[] into = {ByteBuffer.allocate(7), ByteBuffer.allocateDirect(BYTES - 7)};
                    while (into[1].hasRemaining() && channel.read(into) >= 0) {}
                    into[1].flip();
                    byte[] got = Arrays.copyOf(into[0].array(), BYTES);
                    into[1].get(got, 7, into[1].remaining());
                    check(data, got);
                }
                break;
            }
            case "file": {
                var path = java.nio.file.Files.createTempFile("exchange", "");
                java.nio.file.Files.write(path, data);
                try (SocketChannel channel = SocketChannel.open(address); var file = FileChannel.open(path)) {
                    daemon(() -> {
                        for (long at = 0; at < BYTES; ) {
                            at += file.transferTo(at, BYTES - at, channel);
                        }
                        channel.shutdownOutput();
                        return null;
                    });
                    check(data, Channels.newInputStream(channel).readAllBytes());
                } finally {
                    java.nio.file.Files.delete(path);
                }
                break;
            }
            case "small": {
                try (Socket socket = new Socket(address.getAddress(), port)) {
                    socket.setTcpNoDelay(true);
                    var out = socket.getOutputStream();
                    var in = socket.getInputStream();
                    for (int i = 0; i < 3000; i++) {
                        out.write(data[i]);
                        int got = in.read();
                        if ((byte) got != data[i]) {
                            throw new AssertionError(i + ": " + got);
                        }
                    }
                }
                break;
            }
            case "interrupted": {
                // Closed by another thread while one reads: an exception, at once, and the server's other connections go on.
                try (Socket socket = new Socket(address.getAddress(), port); SocketChannel channel = SocketChannel.open(address)) {
                    // Often enough for the connections to be worth a ring.
                    for (int i = 0; i < 100; i++) {
                        socket.getOutputStream().write(data, 0, 1000);
                        socket.getInputStream().readNBytes(1000);
                        channel.write(ByteBuffer.wrap(data, 0, 1000));
                        channel.socket().getInputStream().readNBytes(1000);
                    }
                    var caught = new ArrayBlockingQueue<String>(2);
                    daemon(() -> {
                        try {
                            caught.add("read " + socket.getInputStream().read());
                        } catch (SocketException closed) {
                            caught.add("exception");
                        }
                        return null;
                    });
                    daemon(() -> {
                        try {
                            caught.add("read " + channel.read(ByteBuffer.allocate(10)));
                        } catch (ClosedChannelException closed) {
                            caught.add("exception");
                        }
                        return null;
                    });
                    Thread.sleep(200);
                    socket.close();
                    channel.close();
                    for (int i = 0; i < 2; i++) {
                        String what = caught.poll(20, TimeUnit.SECONDS);
                        if (!"exception".equals(what)) {
                            throw new AssertionError(what);
                        }
                    }
                }
                break;
            }
            case "time-out": {
                try (Socket socket = new Socket(address.getAddress(), port)) {
                    socket.setSoTimeout(100);
                    for (int i = 0; i < 10; i++) {
                        try {
                            socket.getInputStream().read();
                            throw new AssertionError("no time-out");
                        } catch (SocketTimeoutException expected) {
                        }
                        socket.getOutputStream().write(i);
                        socket.setSoTimeout(20_000);
                        if (socket.getInputStream().read() != i) {
                            throw new AssertionError();
                        }
                        socket.setSoTimeout(100);
                    }
                }
                break;
            }
            case "http": {
                HttpClient client = HttpClient.newHttpClient();
                List<CompletableFuture<HttpResponse<byte[]>>> answers = new ArrayList<>();
                for (int i = 0; i < 5; i++) {
                    answers.add(client.sendAsync(HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/echo"))
                        .POST(HttpRequest.BodyPublishers.ofByteArray(data)).build(), HttpResponse.BodyHandlers.ofByteArray()));
                }
                for (var answer : answers) {
                    check(data, answer.get(30, TimeUnit.SECONDS).body());
                }
                break;
            }
            default:
                throw new IllegalArgumentException(kind);
        }
    }
}
