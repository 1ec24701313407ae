/// @file
/// How ranks enter a collective: before any payload moves, one small all-reduce shows that all are there, and that all mean
/// the same. MPI itself would hang, or mix up what does not belong together.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/mpi/calls.hpp>
#include <gradweave/collective/opening.hpp>
#include <gradweave/error.hpp>

namespace gradweave::backend::mpi {

namespace detail {

/// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
constexpr std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

/// What is compared: for `same`, the greatest of each word and of its complement, which are complements of each other only
/// where all ranks gave the same; the largest piece of any rank; and a sum in which what each rank sends cancels what others
/// expect of it.
struct entry_words {
  static constexpr std::size_t compared = 6;
  std::array<std::uint64_t, compared> greatest{};
  std::array<std::uint64_t, compared> least{};  // its complement
  std::uint64_t largest_piece = 0;              // elements
  std::uint64_t balance = 0;

  bool agree() const {
    bool same = balance == 0;
    for (std::size_t i = 0; i < compared; ++i) {
      same = same && greatest[i] == ~least[i];
    }
    return same;
  }

  void merge(const entry_words& other) {
    for (std::size_t i = 0; i < compared; ++i) {
      greatest[i] = std::max(greatest[i], other.greatest[i]);
      least[i] = std::max(least[i], other.least[i]);
    }
    largest_piece = std::max(largest_piece, other.largest_piece);
    balance += other.balance;
  }
};

/// As MPI calls it.
inline void merge_entries(void* in, void* in_out, int* count, MPI_Datatype*) {
  const auto* from = static_cast<const entry_words*>(in);
  auto* to = static_cast<entry_words*>(in_out);
  for (int i = 0; i < *count; ++i) {
    to[i].merge(from[i]);
  }
}

}  // namespace detail

/// One rank's entering. All calls with the turn; its memory must not move, MPI works on it.
class entry {
 public:
  /// `chunk_bytes` is compared too: it decides how many calls a collective takes.
  entry(MPI_Comm communicator, int rank, int size, std::size_t chunk_bytes)
      : communicator_(communicator), rank_(rank), chunk_bytes_(chunk_bytes), openings_(static_cast<std::size_t>(size)) {
    check(MPI_Type_contiguous(sizeof(detail::entry_words), MPI_BYTE, &type_), "MPI_Type_contiguous");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
    check(MPI_Op_create(&detail::merge_entries, 1, &merge_), "MPI_Op_create");
  }
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;

  /// Gives back what MPI holds for it. Nothing is under way.
  void free() {
    MPI_Op_free(&merge_);
    MPI_Type_free(&type_);
  }

  void begin(const collective_request& request, std::uint64_t sequence) {
    own_ = opening::of(request, sequence, {});
    words_ = {};
    words_.greatest = {own_.sequence,
                       own_.elements,
                       (std::uint64_t{own_.plan_version} << 32) | own_.divisor,
                       (static_cast<std::uint64_t>(own_.root) << 32) |
                           (static_cast<std::uint64_t>(own_.operation) << 16) |
                           (static_cast<std::uint64_t>(own_.kind) << 8) | static_cast<std::uint64_t>(own_.reduce),
                       0,
                       chunk_bytes_};
    look_at_pieces(request);
    std::transform(words_.greatest.begin(), words_.greatest.end(), words_.least.begin(),
                   [](std::uint64_t word) { return ~word; });
    is_naming_ = false;
    check(MPI_Iallreduce(MPI_IN_PLACE, &words_, 1, type_, merge_, communicator_, &pending_), "MPI_Iallreduce");
  }

  /// True once all ranks have entered. Throws sync_error(collective_mismatch), on all ranks the same, where they entered
  /// different collectives.
  bool advance() {
    int done = 0;
    check(MPI_Test(&pending_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) {
      return false;
    }
    if (is_naming_) {
      throw sync_error(disagreement());
    }
    if (words_.agree()) {
      return true;
    }
    // All ranks see that they disagree, so all say what they entered: who is to be named costs nothing as long as they agree.
    is_naming_ = true;
    openings_[static_cast<std::size_t>(rank_)] = own_;
    check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, openings_.data(), sizeof(opening), MPI_BYTE, communicator_,
                         &pending_),
          "MPI_Iallgather");
    return false;
  }

  bool is_pending() const { return pending_ != MPI_REQUEST_NULL; }

  /// Of an all-to-all all ranks have entered: the most elements that go from one rank to another.
  std::size_t largest_piece() const { return words_.largest_piece; }

  const opening& own() const { return own_; }

 private:
  void look_at_pieces(const collective_request& request) {
    if (request.operation == collective::all_to_all) {
      const auto self = static_cast<std::uint64_t>(rank_);
      for (std::size_t peer = 0; peer < openings_.size(); ++peer) {
        const std::uint64_t sent = request.source_pieces[peer + 1] - request.source_pieces[peer];
        const std::uint64_t expected = request.pieces[peer + 1] - request.pieces[peer];
        words_.largest_piece = std::max({words_.largest_piece, sent, expected});
        words_.balance += message_words(self, peer, sent) - message_words(peer, self, expected);
      }
    } else if (request.operation != collective::all_reduce && request.operation != collective::broadcast) {
      for (const std::size_t position : request.pieces) {
        words_.greatest[4] = detail::mixed(words_.greatest[4] + 0x9e3779b97f4a7c15U + position);
      }
    }
  }

  static std::uint64_t message_words(std::uint64_t from, std::uint64_t to, std::uint64_t elements) {
    return detail::mixed(detail::mixed((from << 32 | to) + 0x9e3779b97f4a7c15U) + elements);
  }

  /// Who is in the minority is named, and what most entered.
  failure disagreement() const {
    const auto shared_by = [&](const opening& one) { return std::count(openings_.begin(), openings_.end(), one); };
    const auto fewer = [&](const opening& a, const opening& b) { return shared_by(a) < shared_by(b); };
    const auto most = std::max_element(openings_.begin(), openings_.end(), fewer);
    const auto other =
        std::find_if(openings_.begin(), openings_.end(), [&](const opening& one) { return one != *most; });
    if (other == openings_.end()) {
      const std::string what =
          own_.operation == collective::all_to_all
              ? "a rank sends another number of elements than is expected of it"
              : "they cut it into different pieces, or have other options::chunk_bytes or count_max";
      return {errc::collective_mismatch, -1, -1, -1, {}, "ranks entered " + to_string(own_) + ", but " + what};
    }
    const auto culprit = static_cast<int>(other - openings_.begin());
    const std::string here = to_string(*most), there = to_string(*other);
    return {errc::collective_mismatch,
            culprit,
            -1,
            -1,
            {},
            "ranks entered different collectives: rank " + std::to_string(most - openings_.begin()) + " entered " +
                here + ", rank " + std::to_string(culprit) + " " + there +
                (here == there ? "; they differ in the reduction or its divisor" : "")};
  }

  MPI_Comm communicator_;
  int rank_;
  std::uint64_t chunk_bytes_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op merge_ = MPI_OP_NULL;
  MPI_Request pending_ = MPI_REQUEST_NULL;
  opening own_;
  detail::entry_words words_;
  bool is_naming_ = false;
  std::vector<opening> openings_;
};

}  // namespace gradweave::backend::mpi
