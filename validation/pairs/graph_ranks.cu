// PageRank of many small graphs, one after the other: 1024 vertices of 8 edges each, 20 iterations in one
// kernel.
//
//   before       offsets, edges, weights and start ranks of each graph are four copies, from pageable memory
//   pin          the same from pinned memory
//   batch        what belongs to a graph is packed and sent in one copy, from pageable memory
//   pin-streams  pinned memory, asynchronous copies, three streams in turn

#include "measured.h"

namespace {

constexpr int kVertices = 1024, kDegree = 8, kEdges = kVertices * kDegree, kIterations = 20;
constexpr int kGraphs = 64;  // different ones, taken in turn
constexpr float kDamping = 0.85f;

const Program kProgram = {
    "graph_ranks", "PageRank of many small graphs", {"before", "pin", "batch", "pin-streams"}, 1500};

struct Graph {
    int offsets[kVertices];  // of each vertex's incoming edges, the last going on to the end
    int sources[kEdges];
    float weights[kEdges];
    float start[kVertices];
};

/// One block ranks a graph: a thread a vertex.
__global__ void rank(const Graph* graph, float* ranks) {
    __shared__ float now[kVertices];
    const int vertex = static_cast<int>(threadIdx.x);
    const int first = graph->offsets[vertex],
              last = vertex + 1 < kVertices ? graph->offsets[vertex + 1] : kEdges;
    now[vertex] = graph->start[vertex];
    __syncthreads();
    for (int iteration = 0; iteration < kIterations; ++iteration) {
        float sum = 0;
        for (int edge = first; edge < last; ++edge) sum += graph->weights[edge] * now[graph->sources[edge]];
        __syncthreads();
        now[vertex] = (1 - kDamping) / kVertices + kDamping * sum;
        __syncthreads();
    }
    ranks[vertex] = now[vertex];
}

/// Each vertex is the source of kDegree edges of weight 1 / kDegree; where they lead is drawn.
void draw(Graph& graph, uint64_t seed) {
    Uniform uniform(seed);
    std::vector<int> target(kEdges), incoming(kVertices + 1, 0);
    for (int& vertex : target) ++incoming[(vertex = static_cast<int>(uniform() * kVertices)) + 1];
    for (int vertex = 0; vertex < kVertices; ++vertex) {
        incoming[vertex + 1] += incoming[vertex];
        graph.offsets[vertex] = incoming[vertex];
        graph.start[vertex] = 1.0f / kVertices;
    }
    for (int edge = 0; edge < kEdges; ++edge) {
        graph.sources[incoming[target[edge]]++] = edge / kDegree;
        graph.weights[edge] = 1.0f / kDegree;
    }
}

std::vector<double> on_host(const Graph& graph) {
    std::vector<double> now(graph.start, graph.start + kVertices), next(kVertices);
    for (int iteration = 0; iteration < kIterations; ++iteration) {
        for (int vertex = 0; vertex < kVertices; ++vertex) {
            const int last = vertex + 1 < kVertices ? graph.offsets[vertex + 1] : kEdges;
            double sum = 0;
            for (int edge = graph.offsets[vertex]; edge < last; ++edge)
                sum += double(graph.weights[edge]) * now[graph.sources[edge]];
            next[vertex] = (1 - double(kDamping)) / kVertices + double(kDamping) * sum;
        }
        std::swap(now, next);
    }
    return now;
}

/// No rank is lost: they sum to 1, whatever the edges.
double reference_error() {
    std::vector<Graph> graph(1);
    draw(graph[0], 11);
    double sum = 0;
    for (const double value : on_host(graph[0])) sum += value;
    return std::abs(sum - 1);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-6);
    const bool lanes_taken = options.is("pin-streams"), pinned = options.is("pin") || lanes_taken;
    HostBuffer<Graph> graphs(kGraphs, pinned);
    HostBuffer<Graph> packed(1, false);
    HostBuffer<float> ranks(size_t{kGraphs} * kVertices, pinned);
    for (int graph = 0; graph < kGraphs; ++graph) draw(graphs[graph], 100 + graph);
    const int lanes = lanes_taken ? 3 : 1;
    Graph* on_gpu_of_lanes = device_array<Graph>(lanes);
    float* ranks_of_lanes = device_array<float>(size_t(lanes) * kVertices);
    std::vector<cudaStream_t> streams(lanes);
    for (cudaStream_t& stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const auto send = [](void* to, const void* from, size_t bytes) {
        CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    };
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            const Graph& graph = graphs[round % kGraphs];
            const int lane = round % lanes;
            Graph* on_gpu = on_gpu_of_lanes + lane;
            float* ranks_on_gpu = ranks_of_lanes + size_t(lane) * kVertices;
            float* result = &ranks[size_t(round % kGraphs) * kVertices];
            if (lanes_taken) {
                const auto submit = [&](void* to, const void* from, size_t bytes) {
                    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, streams[lane]));
                };
                submit(on_gpu->offsets, graph.offsets, sizeof graph.offsets);
                submit(on_gpu->sources, graph.sources, sizeof graph.sources);
                submit(on_gpu->weights, graph.weights, sizeof graph.weights);
                submit(on_gpu->start, graph.start, sizeof graph.start);
                rank<<<1, kVertices, 0, streams[lane]>>>(on_gpu, ranks_on_gpu);
                CHECK(cudaMemcpyAsync(result, ranks_on_gpu, kVertices * sizeof(float), cudaMemcpyDeviceToHost,
                                      streams[lane]));
                continue;
            }
            if (options.is("batch")) {
                std::memcpy(packed[0].offsets, graph.offsets, sizeof graph.offsets);
                std::memcpy(packed[0].sources, graph.sources, sizeof graph.sources);
                std::memcpy(packed[0].weights, graph.weights, sizeof graph.weights);
                std::memcpy(packed[0].start, graph.start, sizeof graph.start);
                send(on_gpu, packed.data(), packed.bytes());
            } else {
                send(on_gpu->offsets, graph.offsets, sizeof graph.offsets);
                send(on_gpu->sources, graph.sources, sizeof graph.sources);
                send(on_gpu->weights, graph.weights, sizeof graph.weights);
                send(on_gpu->start, graph.start, sizeof graph.start);
            }
            rank<<<1, kVertices>>>(on_gpu, ranks_on_gpu);
            CHECK(cudaMemcpy(result, ranks_on_gpu, kVertices * sizeof(float), cudaMemcpyDeviceToHost));
        }
        for (const cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGetLastError());
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    for (int graph = 0; graph < std::min(kGraphs, options.rounds); graph += 9) {
        const std::vector<double> known = on_host(graphs[graph]);
        for (int vertex = 0; vertex < kVertices; ++vertex)
            error = std::max(error,
                             kVertices * std::abs(known[vertex] - ranks[size_t(graph) * kVertices + vertex]));
    }
    return report(kProgram, options, seconds, error, 1e-4);
}
