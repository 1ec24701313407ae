#include <gradweave/backend/mpi/rounds.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/conformance.hpp>

using namespace gradweave;

TEST_CASE("mpi rounds: take each element of each piece once, in order, and no more at a time than they may") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    testing::random_source random(seed);
    const int size = 1 + static_cast<int>(random.below(5));
    std::vector<std::size_t> pieces = {0};
    for (int r = 0; r < size; ++r) {
      pieces.push_back(pieces.back() + random.below(100));
    }
    const extent whole{nullptr, pieces.back() * 4, 0};
    const std::size_t chunk_bytes = 64 + random.below(1000);
    constexpr collective operations[] = {collective::all_gather, collective::reduce_scatter, collective::all_reduce,
                                         collective::all_to_all, collective::broadcast};
    const collective operation = operations[random.below(5)];
    const collective_request request{
        .operation = operation, .kind = element_kind::float32, .data = {&whole, 1}, .pieces = pieces};
    const bool in_pieces = random.below(2) == 0;
    std::size_t longest = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r) {
      longest = std::max(longest, pieces[r + 1] - pieces[r]);
    }
    backend::mpi::rounds rounds;
    rounds.begin(request, size, in_pieces, operation == collective::all_to_all ? longest : 0, chunk_bytes);
    const bool is_cut = operation != collective::broadcast && (operation != collective::all_reduce || in_pieces);
    const std::vector<std::size_t> cut = !is_cut ? std::vector<std::size_t>{0, pieces.back()}
                                         : operation == collective::all_to_all
                                             ? pieces
                                             : std::vector<std::size_t>(rounds.pieces().begin(), rounds.pieces().end());
    std::vector<std::size_t> reached(cut.begin(), cut.end() - 1);
    bool right = true;
    for (; !rounds.are_over(); rounds.next()) {
      std::size_t taken = 0;
      for (std::size_t r = 0; r + 1 < cut.size(); ++r) {
        const auto part = rounds.part(cut, static_cast<int>(r));
        right = right && part.begin == reached[r];
        reached[r] += part.count;
        taken += part.count;
      }
      right = right && taken != 0 && taken * 4 <= chunk_bytes;
    }
    for (std::size_t r = 0; r + 1 < cut.size(); ++r) {
      right = right && reached[r] == cut[r + 1];
    }
    CHECK(right);
  }
}
