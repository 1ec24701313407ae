/// @file
/// How ranks agree before the first step: they compare what they registered and chose, and where anything differs all
/// of them throw one and the same message, which names the first difference.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/version.hpp>
#include <gradweave/wire.hpp>

namespace gradweave::detail {

/// "'name' float32 [64, 10]".
inline std::string describe_tensor(const std::string& name, const gradient_view& tensor) {
  std::string text = "'" + name + "' " + std::string(element_name(tensor.kind())) + " [";
  const char* separator = "";
  for (const std::size_t extent : tensor.shape().extents()) {
    text += separator + std::to_string(extent);
    separator = ", ";
  }
  return text + "]";
}

inline std::string describe_slot(const manifest_entry& entry) {
  return describe_tensor(entry.name, entry.gradient) + (entry.parameter ? " with parameter" : "") +
         (entry.uses == 1 ? "" : " used " + std::to_string(entry.uses) + " times a step");
}

inline std::string describe_buffer(const manifest_buffer& buffer) {
  return describe_tensor(buffer.name, buffer.value) +
         (buffer.rule.is_averaged ? " averaged" : " from rank " + std::to_string(buffer.rule.from));
}

/// What has to be the same on every rank: what is chosen, and each slot and buffer.
inline description contract_of(description chosen, std::span<const manifest_entry> entries,
                               std::span<const manifest_buffer> buffers = {}) {
  chosen.add("library version", version_string);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    chosen.add("slot " + std::to_string(i), describe_slot(entries[i]));
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    chosen.add("buffer " + std::to_string(i), describe_buffer(buffers[i]));
  }
  return chosen;
}

/// FNV-1a, 64 bits (Fowler, Noll and Vo): finds honest differences; it is no protection against forgery.
inline std::uint64_t digest_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

/// Key and value of each entry, each behind its length: names may hold any character.
inline std::string serialize(const description& said) {
  byte_writer out;
  for (const auto& entry : said.entries()) {
    out.text(entry.key, std::string::npos);
    out.text(entry.value, std::string::npos);
  }
  return {reinterpret_cast<const char*>(out.bytes().data()), out.bytes().size()};
}

/// The entries that are whole: what is cut short ends the list.
inline std::vector<description::entry> deserialize(std::string_view text) {
  std::vector<description::entry> entries;
  byte_reader in(std::as_bytes(std::span(text)));
  while (!in.complete()) {
    std::string key = in.text(text.size());
    std::string value = in.text(text.size());
    if (in.failed()) {
      break;
    }
    entries.push_back({std::move(key), std::move(value)});
  }
  return entries;
}

template <host_backend Backend>
void broadcast_bytes(Backend& backend, int root, std::span<std::byte> bytes) {
  const extent whole{bytes.data(), bytes.size(), 0};
  run_collective(backend, {.operation = collective::broadcast, .root = root, .data = {&whole, 1}});
}

/// The longest text that broadcast_string sends or takes: the description of some hundred thousand gradients.
inline constexpr std::size_t agreement_text_bytes_max = std::size_t{64} << 20;

/// `text` of rank `root`, on every rank; what is longer than the bound is cut. Throws sync_error(manifest_mismatch)
/// where `root` says that it sends more.
template <host_backend Backend>
std::string broadcast_string(Backend& backend, int root, std::string text) {
  std::uint64_t length = std::min(text.size(), agreement_text_bytes_max);
  broadcast_bytes(backend, root, std::as_writable_bytes(std::span(&length, 1)));
  if (length > agreement_text_bytes_max) {
    throw sync_error({errc::manifest_mismatch,
                      root,
                      -1,
                      -1,
                      {},
                      "what rank " + std::to_string(root) + " sends to compare is " + std::to_string(length) +
                          " bytes long, which no rank of this version sends"});
  }
  // In pieces, so that a length which somebody claims gets room only as fast as bytes come.
  constexpr std::size_t piece_bytes = std::size_t{1} << 20;
  for (std::size_t begin = 0; begin < length; begin += piece_bytes) {
    const std::size_t count = std::min<std::size_t>(length - begin, piece_bytes);
    text.resize(std::max(text.size(), begin + count));
    broadcast_bytes(backend, root, std::as_writable_bytes(std::span(text).subspan(begin, count)));
  }
  text.resize(length);
  return text;
}

/// The first difference between two descriptions as a sentence, and the slot names concerned.
inline failure first_difference(const std::vector<description::entry>& theirs, const description& own_said, int rank) {
  const auto& own = own_said.entries();
  const auto [their, mine] = std::mismatch(theirs.begin(), theirs.end(), own.begin(), own.end());
  if (their == theirs.end() && mine == own.end()) {
    return {errc::manifest_mismatch,
            rank,
            -1,
            -1,
            {},
            "ranks disagree on the digest of what they registered, and nothing of it differs between rank 0 and rank " +
                std::to_string(rank)};
  }
  const std::string& key = mine != own.end() ? mine->key : their->key;
  const auto value = [&](auto entry, auto end) {
    return entry == end || entry->key != key ? std::string("nothing") : entry->value;
  };
  const std::string at_root = value(their, theirs.end());
  const std::string here = value(mine, own.end());
  failure cause{errc::manifest_mismatch, rank, -1, -1, {}, ""};
  if (const std::string& slot_text = at_root.starts_with('\'') ? at_root : here; slot_text.starts_with('\'')) {
    cause.slots.push_back(slot_text.substr(1, slot_text.rfind("' ") - 1));
  }
  cause.detail = "ranks disagree on " + key + ": rank 0 has " + at_root + ", rank " + std::to_string(rank) + " has " +
                 here + "; register the same gradients in the same order, with the same policies, on every rank";
  return cause;
}

/// Compares `said` over all ranks. Throws sync_error(manifest_mismatch) on every rank where any differs from rank 0.
template <host_backend Backend>
void agree(Backend& backend, const description& said) {
  const std::string text = serialize(said);
  const auto size = static_cast<std::size_t>(backend.size());
  std::vector<std::uint64_t> digests(2 * size);
  std::vector<std::size_t> pieces;
  for (std::size_t r = 0; r <= size; ++r) {
    pieces.push_back(2 * r);
  }
  digests[2 * static_cast<std::size_t>(backend.rank())] = digest_of(text);
  digests[2 * static_cast<std::size_t>(backend.rank()) + 1] = text.size();
  const extent whole{reinterpret_cast<std::byte*>(digests.data()), digests.size() * sizeof(std::uint64_t), 0};
  run_collective(
      backend,
      {.operation = collective::all_gather, .kind = element_kind::uint64, .data = {&whole, 1}, .pieces = pieces});
  for (std::size_t r = 1; r < size; ++r) {
    if (digests[2 * r] == digests[0] && digests[2 * r + 1] == digests[1]) {
      continue;
    }
    const int differs = static_cast<int>(r);
    const std::string theirs = broadcast_string(backend, 0, text);
    failure cause{errc::manifest_mismatch, differs, -1, -1, {}, ""};
    if (backend.rank() == differs) {
      cause = first_difference(deserialize(theirs), said, differs);
    }
    const std::string slot_name = broadcast_string(backend, differs, cause.slots.empty() ? "" : cause.slots.front());
    cause.slots = slot_name.empty() ? std::vector<std::string>{} : std::vector{slot_name};
    cause.detail = broadcast_string(backend, differs, cause.detail);
    throw sync_error(cause);
  }
}

}  // namespace gradweave::detail
