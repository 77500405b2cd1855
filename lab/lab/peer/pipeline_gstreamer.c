/* The pipeline over GStreamer's core: pad ! queue ! identity ! queue ! identity ! queue ! fakesink. Its elements have
 * no copies: all after a queue is one thread, so each step has one. A queue is bounded in bytes. The steps are
 * probes at the pads of the identity elements, the sink is one at that of fakesink; buffers are passed on as they are. */
#include <gst/gst.h>

static uint64_t step_sums[STEPS];
static uint64_t ended;

static GstElement *made(GstElement *bin, const char *factory) {
    GstElement *element = gst_element_factory_make(factory, NULL);
    if (!element) {
        fprintf(stderr, "GStreamer has no element %s\n", factory);
        exit(1);
    }
    gst_bin_add(GST_BIN(bin), element);
    return element;
}

static void read_buffer(GstPadProbeInfo *info, uint64_t *sum) {
    GstMapInfo map;
    if (!gst_buffer_map(GST_PAD_PROBE_INFO_BUFFER(info), &map, GST_MAP_READ))
        abort();
    if (sum)
        *sum += sum_words((const uint64_t *)map.data);
    else
        sink_take((const uint64_t *)map.data);
    gst_buffer_unmap(GST_PAD_PROBE_INFO_BUFFER(info), &map);
}

static GstPadProbeReturn step(GstPad *pad, GstPadProbeInfo *info, gpointer sum) {
    (void)pad;
    read_buffer(info, (uint64_t *)sum);
    return GST_PAD_PROBE_OK;
}

static GstPadProbeReturn take(GstPad *pad, GstPadProbeInfo *info, gpointer data) {
    (void)pad;
    (void)data;
    if (GST_PAD_PROBE_INFO_TYPE(info) & GST_PAD_PROBE_TYPE_BUFFER)
        read_buffer(info, NULL);
    else if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_EOS)
        ended = now_ns();
    return GST_PAD_PROBE_OK;
}

static void probe(GstElement *element, const char *name, GstPadProbeType type, GstPadProbeCallback callback,
                  uint64_t *sum) {
    GstPad *pad = gst_element_get_static_pad(element, name);
    gst_pad_add_probe(pad, type, callback, sum, NULL);
    gst_object_unref(pad);
}

int main(int count, char **arguments) {
    if (parse_order(count, arguments))
        return 2;
    gst_init(NULL, NULL);
    GstElement *pipeline = gst_pipeline_new(NULL);
    GstElement *queues[STEPS + 1], *steps[STEPS], *before = NULL;
    for (int at = 0; at <= STEPS; at++) {
        queues[at] = made(pipeline, "queue");
        g_object_set(queues[at], "max-size-buffers", 0, "max-size-time", (guint64)0, "max-size-bytes", (guint)order.limit,
                     NULL);
        if (before)
            gst_element_link(before, queues[at]);
        if (at < STEPS) {
            steps[at] = made(pipeline, "identity");
            gst_element_link(queues[at], steps[at]);
            probe(steps[at], "src", GST_PAD_PROBE_TYPE_BUFFER, step, &step_sums[at]);
            before = steps[at];
        }
    }
    GstElement *sink = made(pipeline, "fakesink");
    g_object_set(sink, "sync", FALSE, "async", FALSE, NULL);
    gst_element_link(queues[STEPS], sink);
    probe(sink, "sink", (GstPadProbeType)(GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM), take, NULL);

    /* The source is this thread. */
    GstPad *out = gst_pad_new("out", GST_PAD_SRC), *in = gst_element_get_static_pad(queues[0], "sink");
    gst_element_set_state(pipeline, GST_STATE_PLAYING);
    gst_pad_set_active(out, TRUE);
    if (GST_PAD_LINK_FAILED(gst_pad_link_full(out, in, GST_PAD_LINK_CHECK_NOTHING))) {
        fprintf(stderr, "GStreamer does not link the source\n");
        return 1;
    }
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_BYTES);
    gst_pad_push_event(out, gst_event_new_stream_start("blocks"));
    gst_pad_push_event(out, gst_event_new_segment(&segment));
    begin_memory();
    while (source_goes_on()) {
        uint64_t moment = source_moment();
        GstBuffer *buffer = gst_buffer_new_allocate(NULL, order.size, NULL);
        GstMapInfo map;
        if (!buffer || !gst_buffer_map(buffer, &map, GST_MAP_WRITE))
            abort();
        /* Cleared, as in the other pipelines. */
        memset(map.data, 0, order.size);
        source_fill((uint64_t *)map.data, moment);
        gst_buffer_unmap(buffer, &map);
        if (gst_pad_push(out, buffer) != GST_FLOW_OK) {
            fprintf(stderr, "GStreamer does not take a block\n");
            return 1;
        }
    }
    gst_pad_push_event(out, gst_event_new_eos());
    GstBus *bus = gst_element_get_bus(pipeline);
    GstMessage *message = gst_bus_timed_pop_filtered(bus, GST_CLOCK_TIME_NONE, (GstMessageType)(GST_MESSAGE_EOS | GST_MESSAGE_ERROR));
    if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_EOS) {
        fprintf(stderr, "GStreamer has failed\n");
        return 1;
    }
    print_report(step_sums, ended);
    return 0;
}
