#include <gradweave/extent.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;

namespace {

/// 30 bytes in three pieces of 5, 15 and 10, of which no two touch.
struct three_pieces {
  std::vector<std::byte> memory = std::vector<std::byte>(100);
  std::vector<gw::extent> buffer;

  three_pieces() {
    gw::append_extent(buffer, memory.data() + 50, 5);
    gw::append_extent(buffer, memory.data() + 10, 15);
    gw::append_extent(buffer, memory.data() + 80, 10);
  }

  /// Where byte `position` of the buffer lies.
  std::byte* at(std::size_t position) {
    return memory.data() + (position < 5 ? 50 + position : position < 20 ? 10 + position - 5 : 80 + position - 20);
  }
};

}  // namespace

TEST_CASE("append_extent: offsets rise without gaps, neighbours merge, empty pieces vanish") {
  std::vector<std::byte> memory(64);
  std::vector<gw::extent> buffer;
  CHECK(gw::total_bytes(buffer) == 0);
  gw::append_extent(buffer, memory.data(), 0);
  CHECK(buffer.empty());
  gw::append_extent(buffer, memory.data(), 8);
  gw::append_extent(buffer, memory.data() + 8, 8);
  CHECK(buffer == std::vector<gw::extent>{{memory.data(), 16, 0}});
  gw::append_extent(buffer, memory.data() + 32, 8);
  gw::append_extent(buffer, memory.data() + 16, 8);
  CHECK(buffer ==
        std::vector<gw::extent>{{memory.data(), 16, 0}, {memory.data() + 32, 8, 16}, {memory.data() + 16, 8, 24}});
  CHECK(gw::total_bytes(buffer) == 32);
}

TEST_CASE("for_each_piece: visits every byte of every range once, in order") {
  three_pieces given;
  for (std::size_t offset = 0; offset <= 30; ++offset) {
    for (std::size_t bytes = 0; offset + bytes <= 30; ++bytes) {
      std::size_t position = offset;
      bool right = true;
      std::size_t pieces = 0;
      gw::for_each_piece(given.buffer, offset, bytes, [&](std::byte* memory, std::size_t count) {
        right = right && count != 0;
        for (std::size_t i = 0; i < count; ++i) {
          right = right && memory + i == given.at(position++);
        }
        ++pieces;
      });
      CHECK(right);
      CHECK(position == offset + bytes);
      CHECK(pieces <= 3);
    }
  }
}

TEST_CASE("first_piece: is contiguous, begins at the offset and is as long as it can be") {
  three_pieces given;
  CHECK(gw::first_piece(given.buffer, 0, 0).empty());
  CHECK(gw::first_piece({}, 0, 0).empty());
  for (std::size_t offset = 0; offset < 30; ++offset) {
    for (std::size_t bytes = 1; offset + bytes <= 30; ++bytes) {
      const std::span<std::byte> piece = gw::first_piece(given.buffer, offset, bytes);
      CHECK(piece.data() == given.at(offset));
      const std::size_t end = offset < 5 ? 5 : offset < 20 ? 20 : 30;
      CHECK(piece.size() == std::min(bytes, end - offset));
    }
  }
}

TEST_CASE("first_pieces: the pieces of any range in order, as many as there is room for") {
  const three_pieces held;
  for (std::size_t room = 0; room <= 4; ++room) {
    for (std::size_t begin = 0; begin <= 30; ++begin) {
      for (std::size_t end = begin; end <= 30; ++end) {
        std::vector<std::span<std::byte>> expected, pieces(room);
        gw::for_each_piece(held.buffer, begin, end - begin,
                           [&](std::byte* memory, std::size_t bytes) { expected.emplace_back(memory, bytes); });
        const std::size_t count = gw::first_pieces<std::byte>(held.buffer, begin, end - begin, pieces);
        REQUIRE(count == std::min(room, expected.size()));
        for (std::size_t i = 0; i < count; ++i) {
          CHECK((pieces[i].data() == expected[i].data() && pieces[i].size() == expected[i].size()));
        }
      }
    }
  }
}

TEST_CASE("lies_in: all pieces, to the last byte") {
  std::byte memory[16];
  const gradweave::extent pieces[] = {{memory + 2, 3, 0}, {memory + 8, 4, 3}};
  CHECK(gradweave::lies_in(pieces, memory + 2, 10));
  CHECK_FALSE(gradweave::lies_in(pieces, memory + 3, 10));
  CHECK_FALSE(gradweave::lies_in(pieces, memory + 2, 9));
  CHECK(gradweave::lies_in({}, memory, 0));
}
