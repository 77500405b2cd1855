/*
 * grpcbench: a server and a client of the gRPC library itself, which gRPC for C++, Python, Ruby, PHP and Objective-C
 * share. What it moves are plain bytes, so that no serializer is measured with it.
 *
 *   grpcbench serve PORT                     prints the port (any free one for 0), and serves until SIGTERM
 *   grpcbench unary PORT CALLS SIZE          calls one after another, with a message of SIZE bytes there and back
 *   grpcbench download PORT MESSAGES SIZE    a stream of messages from the server
 *
 * The clients check every message, and print the seconds that all took. One thread each, which waits in the library.
 */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ARRAY_LEN(array) (sizeof(array) / sizeof *(array))

static volatile sig_atomic_t stopped;

static void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("grpcbench: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

static void check(bool holds, const char *what)
{
	if (!holds)
		fail("%s", what);
}

/* Bytes that identify the message they belong to. */
static grpc_byte_buffer *message(uint64_t number, size_t size)
{
	grpc_slice slice = grpc_slice_malloc(size);
	uint8_t *bytes = GRPC_SLICE_START_PTR(slice);

	memset(bytes, (int)(number % 251), size);
	memcpy(bytes, &number, size < sizeof number ? size : sizeof number);
	grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
	grpc_slice_unref(slice);
	return buffer;
}

/* Takes the buffer. */
static void check_message(grpc_byte_buffer *buffer, uint64_t number, size_t size)
{
	grpc_byte_buffer_reader reader;
	grpc_slice slice;
	size_t length = 0;
	bool right = true;

	check(buffer != NULL && grpc_byte_buffer_reader_init(&reader, buffer), "no message came");
	while (grpc_byte_buffer_reader_next(&reader, &slice)) {
		const uint8_t *bytes = GRPC_SLICE_START_PTR(slice);
		size_t here = GRPC_SLICE_LENGTH(slice), i = 0;
		for (; i < here && length + i < sizeof number && length + i < size; i++)
			right &= bytes[i] == ((const uint8_t *)&number)[length + i];
		/* All that follow are the same. */
		if (i < here)
			right &= bytes[i] == number % 251 && memcmp(bytes + i, bytes + i + 1, here - i - 1) == 0;
		length += here;
		grpc_slice_unref(slice);
	}
	check(right, "a message is not what was sent");
	check(length == size, "a message has another length than was sent");
	grpc_byte_buffer_reader_destroy(&reader);
	grpc_byte_buffer_destroy(buffer);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (*text == '\0' || *end != '\0')
		fail("'%s' is no number", text);
	return value;
}

/* ---- server ------------------------------------------------------------------------------------------------------- */

enum state { ACCEPTING, READING, WRITING, ENDING };

/* A call, the tag of whatever is under way for it. */
struct served {
	enum state state;
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array metadata;
	grpc_byte_buffer *request;
	bool is_stream;
	uint64_t next, count, size;
	int cancelled;
};

static void accept_call(grpc_server *server, grpc_completion_queue *queue)
{
	struct served *served = calloc(1, sizeof *served);

	check(served != NULL, "out of memory");
	grpc_call_details_init(&served->details);
	grpc_metadata_array_init(&served->metadata);
	check(grpc_server_request_call(server, &served->call, &served->details, &served->metadata, queue, queue, served) ==
		      GRPC_CALL_OK,
	      "cannot ask for a call");
}

static void start(struct served *served, const grpc_op *ops, size_t count)
{
	check(grpc_call_start_batch(served->call, ops, count, served, NULL) == GRPC_CALL_OK, "cannot answer a call");
}

static void read_request(struct served *served)
{
	grpc_op op = { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &served->request };

	served->state = READING;
	start(served, &op, 1);
}

/* The status, and before it what `first` has, if it is not NULL. */
static void end(struct served *served, grpc_byte_buffer *first)
{
	grpc_op ops[4];
	size_t count = 0;

	memset(ops, 0, sizeof ops);
	if (first) {
		ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
		ops[count].op = GRPC_OP_SEND_MESSAGE;
		ops[count++].data.send_message.send_message = first;
	}
	ops[count].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
	ops[count++].data.send_status_from_server.status = GRPC_STATUS_OK;
	ops[count].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
	ops[count++].data.recv_close_on_server.cancelled = &served->cancelled;
	served->state = ENDING;
	start(served, ops, count);
}

static void send_next(struct served *served)
{
	grpc_op ops[2];
	size_t count = 0;

	if (served->next == served->count) {
		end(served, NULL);
		return;
	}
	memset(ops, 0, sizeof ops);
	if (served->next == 0)
		ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
	grpc_byte_buffer *buffer = message(served->next++, served->size);
	ops[count].op = GRPC_OP_SEND_MESSAGE;
	ops[count++].data.send_message.send_message = buffer;
	served->state = WRITING;
	start(served, ops, count);
	grpc_byte_buffer_destroy(buffer);
}

/* The request of a stream: how many messages, of how many bytes. */
static void begin_stream(struct served *served)
{
	grpc_byte_buffer_reader reader;

	check(served->request && grpc_byte_buffer_reader_init(&reader, served->request), "a request is missing");
	grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
	check(GRPC_SLICE_LENGTH(slice) == 16, "a request has another length");
	memcpy(&served->count, GRPC_SLICE_START_PTR(slice), 8);
	memcpy(&served->size, GRPC_SLICE_START_PTR(slice) + 8, 8);
	grpc_slice_unref(slice);
	grpc_byte_buffer_reader_destroy(&reader);
	send_next(served);
}

static void forget(struct served *served)
{
	if (served->call)
		grpc_call_unref(served->call);
	if (served->request)
		grpc_byte_buffer_destroy(served->request);
	grpc_call_details_destroy(&served->details);
	grpc_metadata_array_destroy(&served->metadata);
	free(served);
}

static void go_on(struct served *served, grpc_server *server, grpc_completion_queue *queue)
{
	switch (served->state) {
	case ACCEPTING:
		served->is_stream = grpc_slice_str_cmp(served->details.method, "/bench/download") == 0;
		accept_call(server, queue);
		read_request(served);
		break;
	case READING:
		if (served->is_stream)
			begin_stream(served);
		else
			end(served, served->request);
		break;
	case WRITING:
		send_next(served);
		break;
	case ENDING:
		forget(served);
		break;
	}
}

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static void serve(const char *port)
{
	struct sigaction action = { .sa_handler = stop };
	char address[64];

	sigaction(SIGTERM, &action, NULL);
	grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
	grpc_server *server = grpc_server_create(NULL, NULL);
	grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
	grpc_server_register_completion_queue(server, queue, NULL);
	snprintf(address, sizeof address, "127.0.0.1:%" PRIu64, number(port));
	int bound = grpc_server_add_http2_port(server, address, plain);
	if (bound == 0)
		fail("cannot listen on %s", address);
	grpc_server_credentials_release(plain);
	grpc_server_start(server);
	accept_call(server, queue);
	printf("%d\n", bound);
	fflush(stdout);

	grpc_event event = { .type = GRPC_QUEUE_TIMEOUT };
	while (event.type != GRPC_QUEUE_SHUTDOWN) {
		if (stopped == 1) {
			stopped = 2;
			grpc_server_shutdown_and_notify(server, queue, NULL);
			grpc_server_cancel_all_calls(server);
		}
		/* The library does not come back for a signal: it looks for one now and then. */
		gpr_timespec until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(50, GPR_TIMESPAN));
		event = grpc_completion_queue_next(queue, until, NULL);
		if (event.type != GRPC_OP_COMPLETE)
			continue;
		struct served *served = event.tag;
		if (!served)
			grpc_completion_queue_shutdown(queue);
		else if (event.success)
			go_on(served, server, queue);
		else
			forget(served);
	}
	grpc_server_destroy(server);
	grpc_completion_queue_destroy(queue);
}

/* ---- clients ------------------------------------------------------------------------------------------------------ */

struct client {
	grpc_channel *channel;
	grpc_completion_queue *queue;
};

/* What a call gets beside its messages. */
struct outcome {
	grpc_metadata_array initial, trailing;
	grpc_status_code status;
	grpc_slice details;
};

static grpc_call *begin_call(struct client *client, const char *method)
{
	grpc_call *call =
		grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, client->queue,
					 grpc_slice_from_static_string(method), NULL, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
	check(call != NULL, "cannot begin a call");
	return call;
}

static void run(struct client *client, grpc_call *call, const grpc_op *ops, size_t count)
{
	check(grpc_call_start_batch(call, ops, count, call, NULL) == GRPC_CALL_OK, "cannot call");
	grpc_event event = grpc_completion_queue_next(client->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	check(event.type == GRPC_OP_COMPLETE && event.success, "a call was refused");
}

static void begin_outcome(struct outcome *outcome, grpc_op *of_initial, grpc_op *of_status)
{
	grpc_metadata_array_init(&outcome->initial);
	grpc_metadata_array_init(&outcome->trailing);
	of_initial->op = GRPC_OP_RECV_INITIAL_METADATA;
	of_initial->data.recv_initial_metadata.recv_initial_metadata = &outcome->initial;
	of_status->op = GRPC_OP_RECV_STATUS_ON_CLIENT;
	of_status->data.recv_status_on_client.trailing_metadata = &outcome->trailing;
	of_status->data.recv_status_on_client.status = &outcome->status;
	of_status->data.recv_status_on_client.status_details = &outcome->details;
}

static void end_call(grpc_call *call, struct outcome *outcome)
{
	if (outcome->status != GRPC_STATUS_OK)
		fail("status %d: %.*s", (int)outcome->status, (int)GRPC_SLICE_LENGTH(outcome->details),
		     (const char *)GRPC_SLICE_START_PTR(outcome->details));
	grpc_slice_unref(outcome->details);
	grpc_metadata_array_destroy(&outcome->initial);
	grpc_metadata_array_destroy(&outcome->trailing);
	grpc_call_unref(call);
}

static void unary(struct client *client, uint64_t count, size_t size)
{
	for (uint64_t i = 0; i < count; i++) {
		grpc_byte_buffer *sent = message(i, size), *answer = NULL;
		struct outcome outcome;
		grpc_op ops[6];

		memset(ops, 0, sizeof ops);
		ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
		ops[1].op = GRPC_OP_SEND_MESSAGE;
		ops[1].data.send_message.send_message = sent;
		ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
		ops[3].op = GRPC_OP_RECV_MESSAGE;
		ops[3].data.recv_message.recv_message = &answer;
		begin_outcome(&outcome, &ops[4], &ops[5]);
		grpc_call *call = begin_call(client, "/bench/unary");
		run(client, call, ops, ARRAY_LEN(ops));
		end_call(call, &outcome);
		grpc_byte_buffer_destroy(sent);
		check_message(answer, i, size);
	}
}

static void download(struct client *client, uint64_t count, uint64_t size)
{
	grpc_slice request = grpc_slice_malloc(16);
	struct outcome outcome;
	grpc_op ops[4], next = { .op = GRPC_OP_RECV_MESSAGE }, last;

	memcpy(GRPC_SLICE_START_PTR(request), &count, 8);
	memcpy(GRPC_SLICE_START_PTR(request) + 8, &size, 8);
	grpc_byte_buffer *sent = grpc_raw_byte_buffer_create(&request, 1);
	grpc_slice_unref(request);
	memset(ops, 0, sizeof ops);
	memset(&last, 0, sizeof last);
	ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
	ops[1].op = GRPC_OP_SEND_MESSAGE;
	ops[1].data.send_message.send_message = sent;
	ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
	begin_outcome(&outcome, &ops[3], &last);
	grpc_call *call = begin_call(client, "/bench/download");
	run(client, call, ops, ARRAY_LEN(ops));
	grpc_byte_buffer_destroy(sent);

	grpc_byte_buffer *received = NULL;
	next.data.recv_message.recv_message = &received;
	for (uint64_t i = 0; i < count; i++) {
		run(client, call, &next, 1);
		check_message(received, i, size);
	}
	run(client, call, &next, 1);
	check(received == NULL, "there are more messages than were asked for");
	run(client, call, &last, 1);
	end_call(call, &outcome);
}

int main(int argc, char **argv)
{
	bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
	bool calls = argc == 5 && strcmp(argv[1], "unary") == 0;
	bool streams = argc == 5 && strcmp(argv[1], "download") == 0;

	if (!serves && !calls && !streams) {
		fputs("usage: grpcbench serve PORT | unary PORT CALLS SIZE | download PORT MESSAGES SIZE\n", stderr);
		return 2;
	}
	grpc_init();
	if (serves) {
		serve(argv[2]);
		grpc_shutdown();
		return 0;
	}
	char address[64];
	snprintf(address, sizeof address, "127.0.0.1:%" PRIu64, number(argv[2]));
	grpc_channel_credentials *plain = grpc_insecure_credentials_create();
	struct client client = {
		.channel = grpc_channel_create(address, plain, NULL),
		.queue = grpc_completion_queue_create_for_next(NULL),
	};
	uint64_t count = number(argv[3]), size = number(argv[4]);
	struct timespec begin, now;
	unary(&client, 1, 8); /* connects */
	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (streams)
		download(&client, count, size);
	else
		unary(&client, count, size);
	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("%.9f\n", (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9);
	grpc_channel_destroy(client.channel);
	grpc_channel_credentials_release(plain);
	grpc_completion_queue_shutdown(client.queue);
	while (grpc_completion_queue_next(client.queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type != GRPC_QUEUE_SHUTDOWN)
		;
	grpc_completion_queue_destroy(client.queue);
	grpc_shutdown();
	return 0;
}
