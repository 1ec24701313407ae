/// @file
/// Extents: a logically contiguous buffer that lies in memory as a list of pieces. Buckets are such buffers, so a new
/// plan moves no memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace gradweave {

/// One contiguous piece of a buffer. A buffer is a `std::span<const extent>` whose offsets rise without gaps from 0.
struct extent {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::size_t offset = 0;  ///< where the piece begins in the buffer, in bytes

  friend bool operator==(const extent&, const extent&) = default;
};

/// The buffer's length in bytes.
constexpr std::size_t total_bytes(std::span<const extent> buffer) {
  return buffer.empty() ? 0 : buffer.back().offset + buffer.back().bytes;
}

/// Appends `bytes` at `memory`; a piece that continues the last one is merged into it, an empty one is dropped.
inline void append_extent(std::vector<extent>& buffer, std::byte* memory, std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  if (!buffer.empty() && buffer.back().memory + buffer.back().bytes == memory) {
    buffer.back().bytes += bytes;
    return;
  }
  buffer.push_back({memory, bytes, total_bytes(buffer)});
}

/// Whether all of it lies in [data, data + bytes).
inline bool lies_in(std::span<const extent> buffer, const std::byte* data, std::size_t bytes) {
  const std::less_equal<const std::byte*> is_at_most;
  return std::all_of(buffer.begin(), buffer.end(), [&](const extent& piece) {
    return is_at_most(data, piece.memory) && is_at_most(piece.memory + piece.bytes, data + bytes);
  });
}

/// Calls `visit(std::byte* memory, std::size_t bytes)` for each contiguous piece of [offset, offset + bytes), in order.
/// The range must lie within the buffer.
template <class Visit>
void for_each_piece(std::span<const extent> buffer, std::size_t offset, std::size_t bytes, Visit&& visit) {
  if (bytes == 0) {
    return;
  }
  auto piece = std::upper_bound(buffer.begin(), buffer.end(), offset,
                                [](std::size_t value, const extent& e) { return value < e.offset; });
  for (--piece; bytes != 0; ++piece) {
    const std::size_t skipped = offset - piece->offset;
    const std::size_t taken = std::min(bytes, piece->bytes - skipped);
    visit(piece->memory + skipped, taken);
    offset += taken;
    bytes -= taken;
  }
}

/// The contiguous piece that begins at `offset`: at most `bytes` long, shorter where an extent ends.
inline std::span<std::byte> first_piece(std::span<const extent> buffer, std::size_t offset, std::size_t bytes) {
  if (bytes == 0) {
    return {};
  }
  const auto next = std::upper_bound(buffer.begin(), buffer.end(), offset,
                                     [](std::size_t value, const extent& e) { return value < e.offset; });
  const extent& piece = *std::prev(next);
  const std::size_t skipped = offset - piece.offset;
  return {piece.memory + skipped, std::min(bytes, piece.bytes - skipped)};
}

/// Writes the contiguous pieces of [offset, offset + bytes) to `pieces`, as many as it holds, and returns how many.
/// The range must lie within the buffer.
template <class Byte>
std::size_t first_pieces(std::span<const extent> buffer, std::size_t offset, std::size_t bytes,
                         std::span<std::span<Byte>> pieces) {
  std::size_t count = 0;
  for (auto piece = std::upper_bound(buffer.begin(), buffer.end(), offset,
                                     [](std::size_t value, const extent& e) { return value < e.offset; });
       bytes != 0 && count != pieces.size(); ++piece, ++count) {
    const extent& from = *std::prev(piece);
    const std::size_t skipped = offset - from.offset;
    pieces[count] = {from.memory + skipped, std::min(bytes, from.bytes - skipped)};
    offset += pieces[count].size();
    bytes -= pieces[count].size();
  }
  return count;
}

/// `bytes` bytes from `begin` on of a buffer.
struct buffer_range {
  std::span<const extent> buffer;
  std::size_t begin = 0;
  std::size_t bytes = 0;

  /// The contiguous piece at `offset` of the range.
  std::span<std::byte> piece_at(std::size_t offset, std::size_t bytes_max) const {
    return first_piece(buffer, begin + offset, std::min(bytes_max, bytes - offset));
  }
};

}  // namespace gradweave
