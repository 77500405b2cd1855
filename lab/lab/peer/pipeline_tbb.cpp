/* The pipeline over the flow graph of oneTBB. Its nodes have no copies: a function_node calls its body for several
 * blocks at once, here for as many as others have copies. Its queues are not bounded; a limiter_node bounds what is
 * under way, here to what the three streams may hold together. Blocks are passed by pointer. */
#include <atomic>
#include <memory>

#include <oneapi/tbb/flow_graph.h>

namespace flow = oneapi::tbb::flow;

int main(int count, char **arguments) {
    if (parse_order(count, arguments))
        return 2;
    std::atomic<uint64_t> sums[STEPS] = {{0}, {0}};
    flow::graph graph;
    flow::input_node<uint64_t *> source(graph, [](oneapi::tbb::flow_control &control) -> uint64_t * {
        if (!source_goes_on()) {
            control.stop();
            return nullptr;
        }
        uint64_t moment = source_moment();
        /* Cleared, as in the other pipelines. */
        uint64_t *block = static_cast<uint64_t *>(calloc(1, order.size));
        if (!block)
            abort();
        source_fill(block, moment);
        return block;
    });
    flow::limiter_node<uint64_t *> limiter(graph, 3 * room_in_blocks());
    auto step = [&sums](int number) {
        return [&sums, number](uint64_t *block) {
            sums[number].fetch_add(sum_words(block), std::memory_order_relaxed);
            return block;
        };
    };
    flow::function_node<uint64_t *, uint64_t *> first(graph, order.copies, step(0));
    flow::function_node<uint64_t *, uint64_t *> second(graph, order.copies, step(1));
    flow::function_node<uint64_t *, flow::continue_msg> sink(graph, flow::serial, [](uint64_t *block) {
        sink_take(block);
        free(block);
        return flow::continue_msg();
    });
    flow::make_edge(source, limiter);
    flow::make_edge(limiter, first);
    flow::make_edge(first, second);
    flow::make_edge(second, sink);
    flow::make_edge(sink, limiter.decrementer());
    begin_memory();
    source.activate();
    graph.wait_for_all();
    uint64_t end = now_ns();
    uint64_t totals[STEPS] = {sums[0].load(), sums[1].load()};
    print_report(totals, end);
    return 0;
}
