"""What every Slurm backend must do with nodes that are drained: ours come back, and nobody else's are touched."""

import pytest

from clearway.model.errors import SlurmRefusedError
from tests.contract.site import OURS, Site, look, untouched


class NodeConformance:
    def test_drain_and_undrain(self, site: Site) -> None:
        job = look(site, site.run_job("node7"))
        site.backend.drain("node7", OURS)
        site.backend.drain("node7", OURS)
        node = site.backend.snapshot().node_by_name["node7"]
        assert (node.available, node.reason) == (False, OURS)
        with pytest.raises(SlurmRefusedError):
            site.backend.drain("node7", "clearway:another")
        with pytest.raises(SlurmRefusedError):
            site.backend.undrain("node7", "clearway:another")
        assert untouched(site, [job])
        site.backend.undrain("node7", OURS)
        site.wait("node7 is available", lambda: site.backend.snapshot().node_by_name["node7"].available)
        assert site.backend.snapshot().node_by_name["node7"].reason == ""
        site.backend.undrain("node7", OURS)
        assert untouched(site, [job])

    def test_a_node_that_somebody_else_drained(self, site: Site) -> None:
        site.drain_as_somebody_else("node8", "bad disk")
        for act in (site.backend.drain, site.backend.undrain):
            with pytest.raises(SlurmRefusedError, match="bad disk"):
                act("node8", OURS)
        node = site.backend.snapshot().node_by_name["node8"]
        assert (node.available, node.reason) == (False, "bad disk")
