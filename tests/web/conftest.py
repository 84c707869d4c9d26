"""Programs of the page, bundled once."""

import pytest

from tests.web.programs import Programs


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("page"))
