/// @file
/// A collective of all ranks of one job in one place, by plain copies and sums in rank order: what stands in for a library of
/// collectives where ranks live in one process.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave::tests {

/// A request with what it refers to.
struct kept_request {
  collective_request request;
  std::vector<extent> data, source;
  std::vector<std::size_t> pieces, source_pieces;

  kept_request() = default;
  explicit kept_request(const collective_request& of)
      : request(of),
        data(of.data.begin(), of.data.end()),
        source(of.source.begin(), of.source.end()),
        pieces(of.pieces.begin(), of.pieces.end()),
        source_pieces(of.source_pieces.begin(), of.source_pieces.end()) {}
};

inline std::vector<std::byte> bytes_of(std::span<const extent> from, std::size_t begin, std::size_t bytes) {
  std::vector<std::byte> read;
  for_each_piece(from, begin, bytes,
                 [&](std::byte* memory, std::size_t count) { read.insert(read.end(), memory, memory + count); });
  return read;
}

inline void put_bytes(std::span<const extent> to, std::size_t begin, const std::vector<std::byte>& bytes) {
  std::size_t done = 0;
  for_each_piece(to, begin, bytes.size(), [&](std::byte* memory, std::size_t count) {
    std::memcpy(memory, bytes.data() + done, count);
    done += count;
  });
}

/// In words, what differs between the ranks' requests; empty where they are of one collective.
inline std::string mismatch_of(std::span<const kept_request> ranks) {
  for (const kept_request& each : ranks) {
    if (each.request.operation != ranks[0].request.operation || each.request.kind != ranks[0].request.kind ||
        each.request.plan_version != ranks[0].request.plan_version || each.request.root != ranks[0].request.root ||
        (each.request.operation != collective::all_to_all && total_bytes(each.data) != total_bytes(ranks[0].data))) {
      return "ranks are in different collectives";
    }
  }
  return {};
}

/// All-reduce, all-gather, all-to-all and broadcast; the ranks' requests match.
inline void run_whole(std::span<const kept_request> ranks) {
  const collective_request& first = ranks[0].request;
  const std::size_t size = element_bytes(first.kind), count = total_bytes(ranks[0].data);
  if (first.operation == collective::all_reduce) {
    std::vector<std::byte> sum = bytes_of(ranks[0].data, 0, count);
    for (std::size_t r = 1; r < ranks.size(); ++r) {
      const std::vector<std::byte> own = bytes_of(ranks[r].data, 0, count);
      reduce_into(first.reduce.operation, first.kind, sum.data(), own.data(), count / size);
    }
    divide(first.kind, sum.data(), count / size, first.reduce.divisor);
    for (const kept_request& each : ranks) {
      put_bytes(each.data, 0, sum);
    }
    return;
  }
  if (first.operation == collective::broadcast) {
    const auto values = bytes_of(ranks[static_cast<std::size_t>(first.root)].data, 0, count);
    for (const kept_request& each : ranks) {
      put_bytes(each.data, 0, values);
    }
    return;
  }
  for (std::size_t from = 0; from < ranks.size(); ++from) {
    for (std::size_t to = 0; to < ranks.size(); ++to) {
      const bool exchanges = first.operation == collective::all_to_all;
      const auto& pieces = exchanges ? ranks[from].source_pieces : ranks[from].pieces;
      const std::size_t which = exchanges ? to : from;
      const auto piece = bytes_of(exchanges ? ranks[from].source : ranks[from].data, pieces[which] * size,
                                  (pieces[which + 1] - pieces[which]) * size);
      put_bytes(ranks[to].data, ranks[to].pieces[from] * size, piece);
    }
  }
}

}  // namespace gradweave::tests
